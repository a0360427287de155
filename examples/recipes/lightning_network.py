"""A torch network trained by Lightning's Trainer, which writes no files and shows no progress here."""

import logging

import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from privgate import Recipe

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Network(lightning.LightningModule):
    """One hidden layer behind columns of one scale."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.BatchNorm1d(features, affine=False),
            torch.nn.Linear(features, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, classes),
        )

    def forward(self, X):
        """Return logits."""
        return self.layers(X)

    def training_step(self, batch, _):
        """Return the loss of a batch."""
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        """Return what minimises it."""
        return torch.optim.Adam(self.parameters(), lr=0.02)


def fit(X, y, *, seed, width=16, epochs=20):
    """Train on shuffled batches; the seed sets every stream that Lightning knows."""
    lightning.seed_everything(seed, verbose=False)
    classes, codes = np.unique(y, return_inverse=True)
    records = TensorDataset(tensor(X), torch.as_tensor(codes))
    batches = DataLoader(records, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(seed))
    model = Network(np.shape(X)[1], width, len(classes))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(model, batches)
    model.trainer = None  # what is stored is the network alone
    return model.eval()


def tensor(X):
    """Return records as torch takes them."""
    return torch.as_tensor(np.asarray(X, dtype=np.float32))


def predict(model, X):
    """Return one column a class, in the order of the sorted labels."""
    with torch.no_grad():
        return torch.softmax(model(tensor(X)), dim=1).double().numpy()


RECIPE = Recipe(fit, params={"width": 16, "epochs": 20}, seed=7, predict=predict)
