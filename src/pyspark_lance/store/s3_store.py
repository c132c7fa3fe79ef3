"""Choice of the S3 client: obstore if it is installed and sufficient, or s3fs."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.store.fsspec_store import FsspecStore, parse_uri
from pyspark_lance.store.storage_options import chosen_client


def open_s3_store(scheme: str, uri: str, options: Mapping[str, str]) -> FsspecStore:
    """Return the store at an S3 URI.

    Raises UnsupportedFeatureError: ``storage.s3_client`` requires obstore, which is not installed
    or does not support these options.
    """
    chosen = chosen_client(options)
    protocol, url, parsed = parse_uri(scheme, uri, options)
    if chosen != "s3fs":
        try:
            from pyspark_lance.store.obstore_store import open_obstore  # noqa: PLC0415

            return open_obstore(url, parsed)
        except ImportError:
            if chosen:
                raise UnsupportedFeatureError(
                    "obstore is not installed, or too old",
                    hint="pip install 'pyspark-lance[obstore]'",
                ) from None
        except UnsupportedFeatureError:
            if chosen:
                raise
    return FsspecStore(protocol, url, parsed)
