"""flask-limiter: two pages with limits of their own, headers, and 429"""

import os

import flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

app = flask.Flask("shop")
limiter = Limiter(
    get_remote_address,
    app=app,
    storage_uri=f"redis://127.0.0.1:{os.environ['PORT']}",
    default_limits=["100 per hour"],
    headers_enabled=True,
)


@app.route("/buy")
@limiter.limit("2 per minute")
def buy():
    return "sold"


@app.route("/see")
def see():
    return "there"


browser = app.test_client()
assert [browser.get("/buy").status_code for _ in range(3)] == [200, 200, 429]
answer = browser.get("/see")
assert answer.status_code == 200 and answer.headers["X-RateLimit-Remaining"] == "99"
