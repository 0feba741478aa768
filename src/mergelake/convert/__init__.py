"""Between what users bring, the storage form, and what they get back.

===================================  ==========================================================
`storage`, `public`                  Arrow as given -> storage form -> public form
`text_read`, `text_write`            texts of values, whole columns at a time
`text_nested`, `datetime_text`       texts of arrays, tuples and maps; of dates with times
`json_text`, `json_read`             JSON and Dynamic as text, and back
`timezones`                          UTC seconds <-> local seconds
===================================  ==========================================================
"""
