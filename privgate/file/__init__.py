"""The fifth question: what the stored file itself carries about single records, whatever its answers tell."""
