"""Generated text for ling-nano: every kind of sample it is trained and tested on."""
