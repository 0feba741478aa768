"""Names of databases and tables, and the definitions of views and unions."""
