"""The fifth question: whether training code hides messages about its records in the model (Yeom et al., 2020, 3.4)."""
