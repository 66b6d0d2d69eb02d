"""Views show results to users: as text, pictures, pages and files of other programs."""
