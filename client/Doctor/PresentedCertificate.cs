namespace KvCluster.Client.Doctor;

/// <summary>The certificate that a server presents.</summary>
/// <param name="Server">Its address, with that of the machine if the name has several.</param>
/// <param name="End">When it expires, or one that the server presents with it, whichever is first; null if there is none.</param>
/// <param name="Error">Why there is none; empty otherwise.</param>
internal sealed record PresentedCertificate(string Server, DateTimeOffset? End, string Error);
