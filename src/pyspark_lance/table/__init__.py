"""Operations on a table, without Spark."""
