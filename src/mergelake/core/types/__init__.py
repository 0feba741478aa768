"""ClickHouse's types: their tree, texts and binary form, their Arrow forms, single values."""
