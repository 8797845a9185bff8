namespace KvCluster.Replication.Log;

/// <summary>Etags and record names between their forms in frames and here. A field that is absent reads as "before all records".</summary>
internal static class WireForms
{
    public static V1.Etag ToWire(this Etag etag) => new() { Epoch = etag.Epoch, Change = etag.Change };

    public static V1.RecordId ToWire(this LogPosition name) => new() { Etag = name.Etag.ToWire(), Checksum = name.Checksum };

    public static Etag FromWire(this V1.Etag? etag) => etag is null ? Etag.None : new Etag(etag.Epoch, etag.Change);

    public static LogPosition FromWire(this V1.RecordId? name) => name is null ? default : new LogPosition(name.Etag.FromWire(), name.Checksum);
}
