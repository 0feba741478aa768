"""Statements: parse, bind, lower to the public objects; `Database.sql`.

Text becomes a value of `statements` (`parser`, over tokens), the value becomes calls of the public objects
(`lower`). SELECTs go to `query` as they are.
"""
