"""flask-session: a session that lasts over two requests and ends"""

import os

import flask
import redis
from flask_session import Session

app = flask.Flask("shop")
client = redis.Redis(port=int(os.environ["PORT"]))
app.config.update(SESSION_TYPE="redis", SESSION_REDIS=client)
Session(app)


@app.route("/add")
def add():
    flask.session["units"] = flask.session.get("units", 0) + 1
    return str(flask.session["units"])


@app.route("/end")
def end():
    flask.session.clear()
    return "0"


browser = app.test_client()
assert [browser.get("/add").text for _ in range(3)] == ["1", "2", "3"]
(key,) = client.scan_iter("session:*")
assert client.ttl(key) > 0
client.connection_pool.disconnect()
assert browser.get("/end").text == "0" and browser.get("/add").text == "1"
