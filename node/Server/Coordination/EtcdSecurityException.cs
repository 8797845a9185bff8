namespace KvCluster.Node.Coordination;

/// <summary>A file with certificates, a key or a password is not usable.</summary>
internal sealed class EtcdSecurityException(string file, string reason) : Exception($"{file} is not usable: {reason}");
