-- Ends a lock, if it is still that of the caller. The lock is taken with SET lock owner NX PX ms.
-- KEYS[1] lock: the owner, while the lock is taken.
-- ARGV[1] owner: a text that nobody else uses.
-- Answer: 1 the lock has ended; 0 it is not that of the owner: its time was over.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
