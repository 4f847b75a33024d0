"""The live dashboard: one local web server over all running applications and the journal."""
