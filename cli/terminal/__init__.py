"""What commands show to people and read from them: safe text, tables, records, and the question before they destroy."""
