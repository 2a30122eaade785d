"""slowapi: a FastAPI page that may be asked twice a minute"""

import os

from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address

limiter = Limiter(
    key_func=get_remote_address, storage_uri=f"redis://127.0.0.1:{os.environ['PORT']}"
)
app = FastAPI()
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@app.get("/buy")
@limiter.limit("2/minute")
def buy(request: Request):
    return "sold"


browser = TestClient(app)
assert [browser.get("/buy").status_code for _ in range(3)] == [200, 200, 429]
