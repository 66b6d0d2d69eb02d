"""The memory that a worker may take of its machine is limited by its control group."""

from gpupc_impl.distributed import machine


def test_memory_of_a_control_group(tmp_path, monkeypatch):
    without = machine.free_memory()
    for name, content in (("max", "5000000"), ("current", "3000000"), ("stat", "anon 7\ninactive_file 1000000\n")):
        (tmp_path / f"memory.{name}").write_text(content)
    monkeypatch.setattr(machine, "CONTROL_GROUPS", tmp_path)
    assert machine.free_memory() == 3_000_000 < without
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.free_memory() > 3_000_000
