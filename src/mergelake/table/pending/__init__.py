"""Views: a part seen at a mutation version. Commands of mutations, bound and applied to the rows of a part."""
