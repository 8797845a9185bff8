namespace KvCluster.Replication.Log;

/// <summary>Converts etags and log positions to and from their forms in frames. A missing field reads as the position before all records.</summary>
internal static class WireForms
{
    public static V1.Etag ToWire(this Etag etag) => new() { Epoch = etag.Epoch, Change = etag.Change };

    public static Internal.V1.RecordId ToWire(this LogPosition name) => new() { Etag = name.Etag.ToWire(), Checksum = name.Checksum };

    public static Etag FromWire(this V1.Etag? etag) => etag is null ? Etag.None : new Etag(etag.Epoch, etag.Change);

    public static LogPosition FromWire(this Internal.V1.RecordId? name) => name is null ? default : new LogPosition(name.Etag.FromWire(), name.Checksum);
}
