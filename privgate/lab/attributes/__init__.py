"""The fourth question: what the model tells about a sensitive feature of somebody whose other features are known."""
