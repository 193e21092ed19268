"""Conformance rows of AES: what is the same each time, with keys of the record (Spark knows no secrets)."""

from __future__ import annotations

from tests.expressions.compiled.like_spark import Case, Row

K16, K24, K32 = b"0123456789abcdef", b"0123456789abcdef01234567", bytes(range(32))
IV12, IV16 = b"unique nonce", b"initialvectorivs"
TEXTS = (None, "", "a", "Spark", "x" * 15, "x" * 16, "x" * 17, "é\U0001f600", "y" * 1000)

ENCRYPTED: tuple[Row, ...] = (
    *((text, key, IV12, IV16, "who") for text in TEXTS for key in (K16, K24, K32)),
    ("a", None, IV12, IV16, "who"),
    ("a", K16, None, None, None),
    ("a", K16, IV12, IV16, ""),
    ("a", b"short", IV12, IV16, "who"),
    ("a", K16, b"short", b"short", "who"),
)


def _gcm(text: bytes, key: bytes, aad: bytes = b"") -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return IV12 + AESGCM(key).encrypt(IV12, text, aad)


DECRYPTED: tuple[Row, ...] = (
    (_gcm(b"Spark", K16), K16, ""),
    (_gcm(b"", K32), K32, ""),
    (_gcm(b"Spark", K16, b"who"), K16, "who"),
    (_gcm(b"Spark", K16, b"who"), K16, "other"),
    (_gcm(b"Spark", K16), K24, ""),
    (_gcm(b"Spark", K16)[:-1], K16, ""),
    (_gcm(b"Spark", K16)[:5], K16, ""),
    (b"", K16, ""),
    (None, K16, ""),
    (b"x" * 32, K16, ""),
    (b"x" * 33, K16, ""),
    (b"x" * 48, b"short", ""),
)

CASES = (
    Case(
        (
            "aes_encrypt(s, k, 'ECB')",
            "aes_encrypt(s, k, 'ecb', 'pkcs')",
            "aes_encrypt(s, k, 'CBC', 'DEFAULT', w)",
            "aes_encrypt(s, k, 'CBC', 'PKCS', w)",
            "aes_encrypt(s, k, 'GCM', 'DEFAULT', v)",
            "aes_encrypt(s, k, 'GCM', 'NONE', v, a)",
            "aes_decrypt(aes_encrypt(s, k), k)",
            "aes_decrypt(aes_encrypt(s, k, 'CBC'), k, 'CBC')",
            "aes_decrypt(aes_encrypt(s, k, 'GCM', 'DEFAULT', '', a), k, 'GCM', 'DEFAULT', a)",
            "octet_length(aes_encrypt(s, k))",
            "octet_length(aes_encrypt(s, k, 'CBC'))",
        ),
        "s string, k binary, v binary, w binary, a string",
        ENCRYPTED,
    ),
    Case(
        (
            "aes_decrypt(b, k)",
            "aes_decrypt(b, k, 'GCM', 'NONE', a)",
            "aes_decrypt(b, k, 'CBC')",
            "aes_decrypt(b, k, 'ECB')",
            "try_aes_decrypt(b, k)",
            "try_aes_decrypt(b, k, 'GCM', 'DEFAULT', a)",
        ),
        "b binary, k binary, a string",
        DECRYPTED,
    ),
    # Of 12 to 27 bytes Spark's GCM says that a buffer of Java's is too short, and try_aes_decrypt says it, too.
    Case(("aes_decrypt(b, k, 'CBC')", "aes_decrypt(b, k, 'ECB')"), "b binary, k binary", ((b"x" * 16, K16),)),
)
