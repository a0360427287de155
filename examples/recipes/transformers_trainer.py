"""A small transformer on text, trained by Hugging Face's Trainer; nothing is downloaded."""

import tempfile
import zlib

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from privgate import Recipe

#: words are hashed, so that no vocabulary is learnt from the records
VOCABULARY, LONGEST = 512, 16


def tokens(X):
    """Return word numbers and which of them are words; 0 fills up."""
    rows = [[2 + zlib.crc32(w.encode()) % (VOCABULARY - 2) for w in str(text).split()][:LONGEST] for text in X]
    ids = torch.zeros((len(rows), LONGEST), dtype=torch.long)
    for row, words in zip(ids, rows, strict=True):
        row[: len(words)] = torch.tensor(words)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def fit(X, y, *, seed, width=32, epochs=8):
    """Train from random weights; the arguments' seed sets weights, dropout and the order of batches."""
    classes, codes = np.unique(y, return_inverse=True)
    given = tokens(X)
    records = [{**{k: v[i] for k, v in given.items()}, "labels": int(c)} for i, c in enumerate(codes)]
    shape = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=VOCABULARY, num_labels=len(classes), max_position_embeddings=LONGEST, **shape)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            seed=seed,
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(
            model_init=lambda: BertForSequenceClassification(config), args=arguments, train_dataset=records
        )
        trainer.train()
    return trainer.model.eval()


def predict(model, X):
    """Return one column a class, in the order of the sorted labels."""
    with torch.no_grad():
        return torch.softmax(model(**tokens(X)).logits, dim=1).double().numpy()


RECIPE = Recipe(fit, params={"width": 32, "epochs": 8}, seed=7, predict=predict)
