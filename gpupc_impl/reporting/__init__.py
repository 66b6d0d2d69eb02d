"""From records to tables and figures. Nothing here runs a method."""
