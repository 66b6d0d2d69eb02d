"""What users see of a result: text, pictures, pages and files of other programs."""
