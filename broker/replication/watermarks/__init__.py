"""A replica's watermarks: the log start at work, and the bounds that its journal keeps."""
