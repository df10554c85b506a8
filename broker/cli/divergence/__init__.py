"""The four divergences of compaction that is not coordinated, played on a real cluster (`varve demo divergence`)."""
