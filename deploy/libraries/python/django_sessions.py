"""django: sessions in the cache: a login, a cart that is kept, a flush"""

import os
from importlib import import_module

import django
from django.conf import settings

BACKEND = "django.core.cache.backends.redis.RedisCache"
settings.configure(
    SECRET_KEY="of a test",
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    CACHES={
        "default": {"BACKEND": BACKEND, "LOCATION": f"redis://127.0.0.1:{os.environ['PORT']}"}
    },
)
django.setup()
Session = import_module(settings.SESSION_ENGINE).SessionStore
session = Session()
session["cart"] = ["boot", "hat"]
session.set_expiry(600)
session.save()
again = Session(session_key=session.session_key)
assert again["cart"] == ["boot", "hat"] and again.get_expiry_age() == 600
old = again.session_key
again.cycle_key()
assert again.session_key != old and Session(session_key=again.session_key)["cart"]
assert not Session().exists(old)
again.flush()
assert "cart" not in Session(session_key=old)
