namespace KvCluster.Replication.Log;

/// <summary>The log positions in a record, which name it and the record before it.</summary>
internal static class RecordNames
{
    extension(RecordRef record)
    {
        /// <summary>This record's log position.</summary>
        public LogPosition Name => new(record.Etag, record.Checksum);

        /// <summary>The log position of the record before it.</summary>
        public LogPosition PreviousName => new(record.Previous, record.PreviousChecksum);
    }
}
