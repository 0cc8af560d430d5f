-- What a provider said when it refused a request as too long, as JSON: {"limit": 200000, "asked": 213462}, each null if it
-- gave no number. Earlier versions have it in the words of `error` alone.
ALTER TABLE call_outcomes ADD COLUMN refusal TEXT;
