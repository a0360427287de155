"""Nothing is released without a valid statement: statement, signing, trust, guarded store, verify, doctor."""
