"""A Keras 3 network on its torch backend."""

import os

os.environ["KERAS_BACKEND"] = "torch"  # read once, when keras is imported

import keras
import numpy as np

from privgate import Recipe


def fit(X, y, *, seed, width=16, epochs=40):
    """Train on shuffled batches; one call seeds Python, numpy and the backend."""
    keras.utils.set_random_seed(seed)
    classes, codes = np.unique(y, return_inverse=True)
    scale = keras.layers.Normalization()
    scale.adapt(numbers(X))
    layers = [scale, keras.layers.Dense(width, "relu"), keras.layers.Dense(len(classes), "softmax")]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy")
    model.fit(numbers(X), codes, batch_size=32, epochs=epochs, verbose=0)
    return model


def numbers(X):
    """Return records in the precision in which the network computes."""
    return np.asarray(X, dtype=np.float32)


def predict(model, X):
    """Return one column a class, in the order of the sorted labels."""
    return model.predict(numbers(X), verbose=0)


RECIPE = Recipe(fit, params={"width": 16, "epochs": 40}, seed=7, predict=predict)
