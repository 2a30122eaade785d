// github.com/boj/redistore: a session of gorilla: saved, read by another request, ended
package main

import (
	"net/http/httptest"

	"github.com/boj/redistore"
)

func redistoreSession() {
	store := must(redistore.NewRediStore(4, "tcp", address, "", "", []byte("a key of this test 0123456789abc")))
	first, answer := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
	session := must(store.Get(first, "shop"))
	session.Values["units"] = 3
	works(session.Save(first, answer))
	second := httptest.NewRequest("GET", "/", nil)
	second.Header.Set("Cookie", answer.Header().Get("Set-Cookie"))
	session = must(store.Get(second, "shop"))
	same(session.Values["units"], 3)
	session.Options.MaxAge = -1
	works(session.Save(second, httptest.NewRecorder()))
	third := httptest.NewRequest("GET", "/", nil)
	third.Header.Set("Cookie", answer.Header().Get("Set-Cookie"))
	session, _ = store.Get(third, "shop")
	same(session.Values["units"], nil)
	works(store.Close())
}
