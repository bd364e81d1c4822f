"""Other protocols that clients speak to the same sessions; what one needs beside the host is an optional extra."""
