"""flask-caching: a cached page, memoize, set_many and clear in RedisCache"""

import os

import flask
from flask_caching import Cache

app = flask.Flask("shop")
cache = Cache(
    app,
    config={
        "CACHE_TYPE": "RedisCache",
        "CACHE_REDIS_URL": f"redis://127.0.0.1:{os.environ['PORT']}/0",
        "CACHE_KEY_PREFIX": "shop:",
    },
)
made = []


@app.route("/price")
@cache.cached(timeout=60)
def page():
    made.append("page")
    return "seven"


@cache.memoize(60)
def price(units):
    made.append(units)
    return units * 7


browser = app.test_client()
assert [browser.get("/price").text for _ in range(2)] == ["seven"] * 2 and made == ["page"]
with app.app_context():
    assert price(6) == price(6) == 42 and made == ["page", 6]
    cache.delete_memoized(price)
    assert price(6) == 42 and made == ["page", 6, 6]
    assert cache.set_many({"a": 1, "b": 2}) and cache.get_many("a", "b", "c") == [1, 2, None]
    assert cache.add("a", 9) is False and cache.delete_many("a", "b") and cache.clear()
    assert cache.get("a") is None
