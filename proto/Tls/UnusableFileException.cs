namespace KvCluster.Tls;

/// <summary>A file with certificates, a key or a secret cannot be used. The message is one line that names the file and says why.</summary>
internal sealed class UnusableFileException(string file, string reason) : Exception($"{file} is not usable: {reason}");
