namespace KvCluster.Storage.Encoding;

/// <summary>The files have a format version that this build does not read. Nothing was changed.</summary>
internal sealed class FormatVersionException(string path, uint found, uint supported)
    : Exception($"'{path}' has format version {found}, but this build reads only version {supported}.");
