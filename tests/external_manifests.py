"""External manifest stores for tests: DynamoDB in the moto server of `s3_server`, and SQLite"""

import itertools

import boto3

_numbers = itertools.count()


def dynamodb_client(server):
    """A boto3 client of the server's DynamoDB."""
    return boto3.client(
        "dynamodb",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
    )


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
