"""The authors' own programs as methods: adapters alone, none of their code (docs/peers.md)."""
