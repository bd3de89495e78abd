"""The state that a log keeps of idempotent and transactional producers."""
