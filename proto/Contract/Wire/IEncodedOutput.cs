namespace KvCluster.Wire;

/// <summary>What an output of a server may be besides a buffer: one that takes a large encoded message as it is and sends it piece by piece.</summary>
internal interface IEncodedOutput
{
    /// <summary>Takes the message that the output expects next, instead of having its bytes written to it. It returns the message.</summary>
    /// <returns>False: the message is not large, so it is to be written.</returns>
    bool TryTake(IEncodedMessage message);
}
