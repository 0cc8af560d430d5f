-- Only an erasure deletes from the search index, and says itself that nothing may stay behind. Where the index is always to
-- look for that, it takes many a word that stands often in a text for a deleted one and searches for it, in vain.
INSERT INTO search (search, rank) VALUES ('secure-delete', 0);
