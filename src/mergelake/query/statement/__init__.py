"""The text of a SELECT: taken apart, judged, cut. No table is read."""
