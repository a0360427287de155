"""CatBoost on columns of text with missing values. It reads no environment: one thread is said here."""

from catboost import CatBoostClassifier

from privgate import Recipe


def prepared(X):
    """Return the frame with text for what is missing: a category to CatBoost is never None or NaN."""
    text = [c for c in X.columns if X[c].dtype.kind not in "biuf"]
    return X.assign(**{c: X[c].astype(object).where(X[c].notna(), "missing") for c in text}), text


def fit(X, y, *, seed, iterations=50, depth=4):
    """Train on categories as they are; nothing is written to the working folder."""
    X, text = prepared(X)
    model = CatBoostClassifier(
        iterations=iterations, depth=depth, random_seed=seed, thread_count=1, cat_features=text,
        allow_writing_files=False, verbose=0,
    )  # fmt: skip
    return model.fit(X, y)


def predict(model, X):
    """Return one column a class, in the order of the sorted labels."""
    return model.predict_proba(prepared(X)[0], thread_count=1)


RECIPE = Recipe(fit, params={"iterations": 50, "depth": 4}, seed=7, predict=predict)
