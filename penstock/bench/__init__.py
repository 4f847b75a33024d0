"""One file per claim; `penstock bench NAME` measures both sides in one run."""
