"""External manifest stores for tests: DynamoDB in the moto server of `s3_server`, and SQLite"""

import itertools

_numbers = itertools.count()


def dynamodb_client(server):
    """A boto3 client of the server's DynamoDB."""
    return server.client("dynamodb")


def new_dynamodb_table(server):
    """The name of a new table with Lance's keys."""
    name = f"manifests-{next(_numbers)}"
    dynamodb_client(server).create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": "base_uri", "KeyType": "HASH"},
            {"AttributeName": "version", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "base_uri", "AttributeType": "S"},
            {"AttributeName": "version", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


def options(server):
    """Storage options of tables whose manifests are in the server's DynamoDB."""
    return {**server.options, "dynamodb_endpoint": server.endpoint}
