"""Files: safetensors in and out, their metadata, atomic writes, quantised uploads."""
