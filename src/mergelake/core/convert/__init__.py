"""Conversion of values between the user's form, the storage form and the public form.

===================================  ==========================================================
`storage`, `public`                  Arrow of users -> storage form -> public form
`text_read`, `text_write`            text <-> storage form, whole columns at a time
`text_nested`, `datetime_text`       parsing of arrays, tuples and maps; of dates with times
`json_text`, `json_read`             JSON and Dynamic <-> text
`timezones`                          UTC seconds <-> local seconds
===================================  ==========================================================
"""
