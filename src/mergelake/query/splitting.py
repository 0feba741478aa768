"""placeholder"""
def split(prepared): return None, "no"
