from pyspark_lance.store.s3_requests import error_codes


class ClientError(Exception):
    def __init__(self, code, status):
        super().__init__(code)
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


def test_error_codes_are_found_in_causes():
    outer = OSError("translated")
    outer.__cause__ = ClientError("PreconditionFailed", 412)
    assert {"PreconditionFailed", "412"} <= error_codes(outer)
    assert error_codes(OSError("plain")) == set()
    assert error_codes(None) == set()
