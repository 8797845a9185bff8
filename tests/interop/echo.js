// The types of the echo service for both scripts.
'use strict';
const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const definition = loader.loadSync(path.join(__dirname, 'echo.proto'), { keepCase: true, defaults: true });

module.exports = { grpc, testing: grpc.loadPackageDefinition(definition).kvcluster.testing };
