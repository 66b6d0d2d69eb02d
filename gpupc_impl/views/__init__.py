"""Views of a result for its users: text, pictures, pages and files of other programs."""
